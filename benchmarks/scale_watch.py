"""Run the command line in this process, then print its seconds and the peak of its largest process as JSON."""

import json
import resource
import time

from benchmarks.memory import _status

if __name__ == "__main__":
    from repsurgery.cli.app import app

    begin = time.perf_counter()
    app(standalone_mode=False)
    seconds = time.perf_counter() - begin
    child = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"seconds": seconds, "peak": max(_status("VmHWM"), child)}))
