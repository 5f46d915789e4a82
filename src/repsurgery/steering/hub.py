"""The Hugging Face hub: files of a repository, downloaded and uploaded, with errors that say what to do."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from repsurgery.errors import HubError, MissingExtraError, ParameterError

__all__ = ["check_repository", "download", "hub_library", "upload"]

_LOG_IN = "Pass token=, set HF_TOKEN, or log in with `hf auth login`."
_LONGEST = 200
"""Characters of a reason that are shown; some span several paragraphs."""


def hub_library() -> ModuleType:
    """Return the module huggingface_hub, or raise an error that names the extra."""
    try:
        import huggingface_hub
        import huggingface_hub.errors  # which the package does not import by itself
        import huggingface_hub.utils
    except ImportError as error:
        raise MissingExtraError(
            f"Sharing steerings needs huggingface-hub ({error}): pip install 'repsurgery[hub]'"
        ) from error
    return huggingface_hub


def check_repository(name: str, *, what: str = "a repository on the hub") -> str:
    """Return ``name`` if it has the form OWNER/NAME and the characters that the hub allows."""
    hub = hub_library()
    try:
        hub.utils.validate_repo_id(name)
        if name.count("/") != 1:
            raise hub.errors.HFValidationError("there must be one slash")
    except hub.errors.HFValidationError as error:
        raise ParameterError(f"{name!r} is not the name of {what}; write it as OWNER/NAME.") from error
    return name


def download(repository: str, files: Collection[str], *, revision: str | None, token: str | bool | None) -> Path:
    """Return the folder that holds ``files`` of one commit, as far as the repository has them; downloaded once."""
    hub = hub_library()
    check_repository(repository)
    with _explained(repository, revision):
        found = hub.snapshot_download(
            repository,
            revision=revision,
            token=token,
            allow_patterns=list(files),
            library_name="repsurgery",
        )
    return Path(found)


def upload(
    repository: str,
    files: Mapping[str, bytes],
    *,
    message: str,
    revision: str | None,
    token: str | bool | None,
    private: bool | None,
) -> str:
    """Write ``files`` in one commit, create the repository where it is missing, and return the commit's address."""
    hub = hub_library()
    check_repository(repository)
    api = hub.HfApi(token=token, library_name="repsurgery")
    additions = [hub.CommitOperationAdd(name, data) for name, data in files.items()]
    with _explained(repository, revision):
        api.create_repo(repository, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        commit = api.create_commit(repository, additions, commit_message=message, revision=revision)
    return str(commit.commit_url)


@contextmanager
def _explained(repository: str, revision: str | None) -> Iterator[None]:
    """Turn the errors of huggingface_hub into a `HubError` with a remedy."""
    errors = hub_library().errors
    try:
        yield
    except errors.GatedRepoError as error:
        raise HubError(
            f"{repository} is gated: its owner decides who may read it. Ask for access on its page on the hub. "
            f"{_LOG_IN}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise HubError(
            f"There is no repository {repository} on the hub, or it is private, or the token is not valid for it. "
            f"Check the name. {_LOG_IN}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise HubError(f"{repository} has no revision {revision!r}. Name a branch, a tag or a commit of it.") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise HubError(_unreachable(repository, error)) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        refused = f"The token must be valid and allow this. {_LOG_IN}" if status in (401, 403) else "Try again later."
        said = f": {error.server_message}" if error.server_message else ""
        raise HubError(f"The hub refused {repository} with status {status}{_on_one_line(said)}. {refused}") from error
    except errors.LocalTokenNotFoundError as error:
        raise HubError(f"There is no token for {repository}. {_LOG_IN}") from error
    except (errors.HTTPError, OSError, RuntimeError) as error:  # an upload that breaks off is a RuntimeError
        raise HubError(_unreachable(repository, error)) from error
    except ValueError as error:
        raise HubError(f"The hub does not accept this for {repository}: {_on_one_line(error)}.") from error


def _unreachable(repository: str, error: Exception) -> str:
    reason = error.__cause__ or error  # the library explains at length why no copy on disk was found either
    return (
        f"The hub cannot be reached for {repository}, and there is no copy on disk ({_on_one_line(reason)}). Check the "
        "network and HF_HUB_OFFLINE, or give a file or folder."
    )


def _on_one_line(text: object) -> str:
    line = " ".join(str(text).split()).rstrip(".")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
