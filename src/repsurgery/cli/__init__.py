"""Commands: parse, call one public function, show."""
