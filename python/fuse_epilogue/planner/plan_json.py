"""Plans as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TypeVar

from . import validate_plan
from .backends import backend_of, check_permitted, machine_data, machine_of
from .json_schema import loaded, read
from .plan_record import PlanRecord

#: Of the JSON of a plan; another one is refused.
VERSION = 4

Made = TypeVar("Made", bound=PlanRecord)


def written(plan: PlanRecord) -> str:
    """Return a plan as JSON.

    - Raises ValueError: the plan is for a Trainium machine that is not known by name.
    """
    machine = machine_data(plan.machine)
    data = asdict(replace(plan, machine=None, known=None))  # type: ignore[arg-type]
    del data["known"]
    return json.dumps({"version": VERSION, **data, "machine": machine}, indent=2)


def read_plan(kind: type[Made], text: str) -> Made:
    """Return the plan that :func:`written` wrote.

    - `kind`: :class:`.plans.Plan`.
    - Raises ValueError: the text is not valid JSON for a plan, has an unsupported version, contains
      an invalid value, or is inconsistent: see :mod:`.validate_plan`.
    """
    try:
        data = loaded(text)
        if not isinstance(data, dict) or "version" not in data:
            raise ValueError("it has no version")
        version = data.pop("version")
        if type(version) is not int or version != VERSION:
            raise ValueError(f"it is not of version {VERSION}; plan again")
        made: Made = read(kind, {**data, "machine": machine_of(data.get("machine"))}, "it")
        check_permitted(made.machine, finite=made.finite, round_shares=made.round_shares)
        kinds = [kind.name for kind in backend_of(made.machine).kinds]
        if made.kind not in kinds:
            raise ValueError(f"its kind must be one of {', '.join(kinds)}, not '{made.kind}'")
        validate_plan.check(made)
    except ValueError as error:
        raise ValueError(f"this is not the JSON of a plan: {error}") from error
    return made
