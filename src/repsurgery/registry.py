"""`Registry`: objects by name, our own and those of installed plugins, imported only when they are used."""

import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from repsurgery.checkpoint import file_digest
from repsurgery.errors import ParameterError, PluginWarning

__all__ = ["Registry", "call_reading", "installed_plugins", "offers", "reads"]

T = TypeVar("T")
_KINDS = ("methods", "candidates", "gates", "scorers", "generators", "exporters", "importers", "commands", "engines")
_GROUPS = tuple(f"repsurgery.{kind}" for kind in _KINDS)


class Registry(Generic[T]):
    """Objects of one sort by name.

    Parameters
    ----------
    noun : str
        What a name stands for ("method"), for messages.
    home : str or None
        The package or module whose modules register themselves; they are imported when a name is looked up.
    own : mapping of name to "module:attribute"
        Instead of a home: our objects, in the order in which they are listed, each imported when it is used.
    group : str or None
        The entry point group of plugins; None where there are none.
    needs : str
        What a plugin must offer, for messages.
    accepts : function
        Whether an object of a plugin is of that sort.
    instances : bool
        A plugin may also name a class, of which an object is made without arguments.

    Guarantees
    ----------
    An unknown name raises a `ParameterError` that lists the known ones (test_an_unknown_name_lists_the_known_ones).
    A plugin is imported only when its name is used or all names are listed
    (test_a_plugin_is_imported_only_when_it_is_used).
    A plugin that cannot be imported is left out with a `PluginWarning` (test_a_broken_plugin_is_named_and_left_out).
    Threads may look names up at the same time (test_threads_find_every_name).
    A plugin never replaces one of our names, nor another plugin (test_a_plugin_never_replaces_a_built_in_name,
    test_two_plugins_of_one_name_are_both_named).

    Examples
    --------
    >>> from repsurgery.steering.base import METHODS
    >>> METHODS["mimic"].__name__
    'MiMiC'
    """

    def __init__(
        self,
        noun: str,
        *,
        home: str | None = None,
        own: Mapping[str, str] | None = None,
        group: str | None = None,
        needs: str = "a function",
        accepts: Callable[[Any], bool] = callable,
        instances: bool = False,
    ) -> None:
        self.noun, self.home, self.group = noun, home, group
        self._needs, self._accepts, self._instances = needs, accepts, instances
        self._places = dict(own or {})
        self._own: dict[str, T] = {}
        self._unlisted: set[str] = set()
        self._unread: list[str] | None = None
        self._lock = threading.RLock()

    def register(self, name: str, *, listed: bool = True) -> Callable[[T], T]:
        """Return a decorator that registers an object under ``name``.

        One that is not listed is found by its name, and left out where all objects are gone through.
        """

        def decorate(value: T) -> T:
            if _path(self._own.get(name, value)) != _path(value):
                raise ParameterError(
                    f"{_path(value)} and {_path(self._own[name])} both register the {self.noun} {name!r}; rename one."
                )
            self._own[name] = value
            if not listed:
                self._unlisted.add(name)
            return value

        return decorate

    def own(self) -> dict[str, T]:
        """Return what this package registers and lists, sorted by name or in the order of its table."""
        self._read_until(None)
        names = (*self._places, *sorted(self._own.keys() - self._places.keys()))
        return {name: self._own[name] for name in names if name not in self._unlisted}

    def unlisted(self) -> list[str]:
        """Return the names that are found and not listed, sorted."""
        self._read_until(None)
        return sorted(self._unlisted)

    def names(self) -> tuple[str, ...]:
        """Return the names that can be used, unless a plugin turns out to be broken: no plugin is imported.

        Guarantees
        ----------
        Ours come first, then those of plugins, each of them listed by one package (test_names_import_no_plugin).
        """
        names = list(self._places) or list(self.own())
        for name, plugins in sorted(self._plugins().items()):
            if name in names or name in self._unlisted:
                self._warn_of_shadowed(name, plugins)
            elif len(plugins) > 1:
                _warn(f"The {self.noun} {name!r} is left out, because {_packages(plugins)} all register it.")
            else:
                names.append(name)
        return tuple(names)

    def __getitem__(self, name: str) -> T:
        """Return the object called ``name``, or raise a `ParameterError`."""
        if not isinstance(name, str):
            raise ParameterError(f"{self.noun} is {name!r}; it must be one of {', '.join(self)}.")
        self._read_until(name)
        plugins = self._plugins().get(name, ())
        if name in self._own:
            if plugins:
                self._warn_of_shadowed(name, plugins)
            return self._own[name]
        if not plugins:
            raise ParameterError(f"There is no {self.noun} {name!r}; choose one of {', '.join(self)}.")
        if len(plugins) > 1:
            raise ParameterError(
                f"The packages {_packages(plugins)} all register the {self.noun} {name!r}, so it is unclear which "
                "one is meant. Uninstall all but one of them."
            )
        value: T
        value, problem = self._load(plugins[0])
        if problem is not None:
            raise ParameterError(f"The {self.noun} {name!r} cannot be used. {problem}")
        return value

    def __contains__(self, name: object) -> bool:
        self._read_until(name)
        return name in self._own or name in self._plugins()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names that can be used: ours first, then those of plugins, each sorted."""
        own = self.own()
        for name in self.names():
            if name in own or self._load(self._plugins()[name][0])[1] is None:
                yield name

    def source(self, name: str) -> dict[str, str]:
        """Return the package of a plugin and the digest of its module; nothing for a name of this package.

        They belong to the identity of stored results, so that a changed plugin computes anew.
        """
        self._read_until(name)
        plugins = () if name in self._own else self._plugins().get(name, ())
        file = getattr(sys.modules.get(getattr(self[name], "__module__", "")), "__file__", None) if plugins else None
        return {
            f"{self.noun} {name}": f"{_packages([plugin])} {file_digest(Path(file)) if file else ''}".strip()
            for plugin in plugins
        }

    def packages(self) -> dict[str, str]:
        """Return the packages of plugins by the name that they register; none is imported."""
        return {name: _packages(plugins) for name, plugins in sorted(self._plugins().items())}

    def package(self, name: str) -> str:
        """Return the name of the package that registers ``name``."""
        plugins = () if name in self._places or name in self._own else self._plugins().get(name, ())
        return next((plugin.dist.name for plugin in plugins if plugin.dist), "repsurgery")

    def warn_of(self, name: str, problem: str) -> None:
        """Warn that the plugin ``name`` breaks its protocol."""
        _warn(self._broken(self._plugins()[name][0], problem))

    def _read_until(self, name: object) -> None:
        """Import our objects until ``name`` is registered; None imports all of them."""
        with self._lock:
            for key, place in self._places.items():
                if key not in self._own and name in (key, None):
                    module, _, attribute = place.partition(":")
                    self._own[key] = getattr(import_module(module), attribute)
            if self.home is None:
                return
            if self._unread is None:
                paths = getattr(import_module(self.home), "__path__", [])
                self._unread = [f"{self.home}.{module.name}" for module in iter_modules(paths)]
            while self._unread and name not in self._own:
                # a module may look up a name while it is imported, so it is dropped first
                import_module(self._unread.pop(0))

    def _plugins(self) -> dict[str, tuple[EntryPoint, ...]]:
        return {} if self.group is None else _entry_points(self.group, tuple(sys.path))

    def _load(self, plugin: EntryPoint) -> tuple[Any, str | None]:
        """Return a plugin's object and None, or None and what is wrong, after a warning."""
        try:
            value = plugin.load()
            if self._instances and isinstance(value, type):
                value = value()
            problem = None if self._accepts(value) else f"{plugin.value} is not {self._needs}"
        # a plugin is foreign code: whatever its import raises must not stop commands that do not use it
        except (Exception, SystemExit) as error:
            problem = f"importing {plugin.value} raised {type(error).__name__}: {error}"
        if problem is None:
            return value, None
        words = self._broken(plugin, problem)
        _warn(words)
        return None, f"{words.rpartition('. Repair')[0]}."

    def _broken(self, plugin: EntryPoint, problem: str) -> str:
        return (
            f"The plugin {plugin.name!r} ({self.group}) of the package {_packages([plugin])} is broken: "
            f"{problem.removesuffix('.')}. Repair or uninstall it; everything else works without it."
        )

    def _warn_of_shadowed(self, name: str, plugins: tuple[EntryPoint, ...]) -> None:
        _warn(
            f"The package {_packages(plugins)} registers the {self.noun} {name!r}, which is a name of repsurgery; the "
            "one of repsurgery is used. Rename the plugin."
        )


def offers(*names: str) -> Callable[[Any], bool]:
    """Return a function that says whether a value is an object, not a class, with attributes of these names."""
    return lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in names)


def reads(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the parameters of a registered function: they say what it reads."""
    return frozenset(inspect.signature(function).parameters)


def call_reading(function: Callable[..., T], **offered: Any) -> T:
    """Call ``function`` with those of the ``offered`` values that its parameters name."""
    parameters = inspect.signature(function).parameters.values()
    unknown = [p.name for p in parameters if p.name not in offered and p.default is p.empty]
    if unknown:
        raise ParameterError(f"{function!r} reads {', '.join(unknown)}; it may read {', '.join(offered)}.")
    return function(**{p.name: offered[p.name] for p in parameters if p.name in offered})


def installed_plugins() -> dict[str, str]:
    """Return the name and version of each package that registers anything for this one; none is imported."""
    points = [point for group in _GROUPS for point in entry_points(group=group)]
    return {point.dist.name: point.dist.version for point in points if point.dist}


@lru_cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:
    # installed packages are found through sys.path, so that the answer holds while it stays the same
    plugins: dict[str, tuple[EntryPoint, ...]] = {}
    for plugin in entry_points(group=group):
        plugins[plugin.name] = (*plugins.get(plugin.name, ()), plugin)
    return plugins


def _path(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _packages(plugins: tuple[EntryPoint, ...] | list[EntryPoint]) -> str:
    names = [f"{p.dist.name} {p.dist.version}" if p.dist else "of unknown name" for p in plugins]
    return " and ".join(sorted(names))


def _warn(text: str) -> None:
    warnings.warn(text, PluginWarning, stacklevel=4)
