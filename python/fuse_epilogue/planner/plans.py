"""A plan: the schedule that was chosen for a function, as data, with the reasons.

plan = fuse_epilogue.plan(func, target)
print(plan.explain())
built = tvm.compile(plan.apply(func).mod, target=target)      # or fuse_epilogue.compile
"""

from __future__ import annotations

from pathlib import Path

from tvm import s_tir, tirx

from .._arguments import flag
from .backends import backend_of
from .explanation import brief
from .explanation import explain as reasons
from .explanation import picture as drawing
from .plan_json import read_plan, written
from .plan_problem import problem_of
from .plan_record import PlanRecord
from .problems.problem import Problem


class Plan(PlanRecord):
    """Plan of a function's schedule.

    Attributes
    ----------
    kind : str
        Kind of the problem: the name of one of :data:`.backends.BACKENDS`' kinds.
    sizes : dict[str, int]
        Sizes of the function it was made for.
    dtype : str
        Type of the inputs.
    machine : Cpu, Gpu or fuse_epilogue.neuron.machine.Machine
    weights : Weights
        Weights of the cost on this machine.
    found : Found
        Result of the search; ``found.best`` is the plan.
    finite : bool
        Whether data and weights are taken to be finite; for Trainium only.
    round_shares : bool
        Whether shares of attention may be rounded; for Trainium only.
    resolution : float
        The share below which a difference of two costs means nothing; see
        :attr:`.measurement.profile.Profile.resolution`.
    identity : str
        Identity of the function it was made for, see :func:`.plan_problem.identity_of`;
        :data:`.plan_record.ANY` for a plan that was put together by hand. JSON without
        an identity is refused.
    known : Problem or None
        The problem it was made for, if this process made it; JSON does not hold it.
    """

    def cost_of(self, fusion: int) -> float | None:
        """Return what the best schedule with one way to fuse costs.

        Parameters
        ----------
        fusion : int
            ``NONE``, ``TAIL`` or ``ABSORBED`` of :mod:`fuse_epilogue.rewrites.epilogue`. Trainium
            has one way to fuse, returned for either of the two.

        Returns
        -------
        float or None
            Seconds, as the model predicts them; None where the function has no such schedule.

        Example
        -------
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> from fuse_epilogue.rewrites.epilogue import NONE, TAIL
        >>> plan = fuse_epilogue.plan(workloads.matmul(128, 128, 128), "trn1")
        >>> plan.cost_of(TAIL) < plan.cost_of(NONE)
        True
        """
        found = self.found.by_fusion.get(backend_of(self.machine).way(fusion))
        return None if found is None else found.cost

    def __str__(self) -> str:
        """Return what was chosen and what it costs; :meth:`explain` says why."""
        return reasons.summary(self)

    def __repr__(self) -> str:
        """Return what the plan is for and what it costs, in one line."""
        return f"<Plan: {reasons.head(self)}; {self.cost * 1e6:,.2f} us predicted>"

    def _repr_svg_(self) -> str:
        """Return the picture of the plan, for notebooks."""
        return drawing.drawn(self, self.known, 1000)

    def problem(self, func: tirx.PrimFunc | s_tir.Schedule) -> Problem:
        """Return the problem that a function is.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc or tvm.s_tir.Schedule
            The function that the plan is for; a schedule means the function that it works on.

        Returns
        -------
        Problem
            Its sizes, its variables and what each of their values costs.

        Raises
        ------
        TypeError
            `func` is neither a PrimFunc nor a Schedule.
        ValueError
            The plan is for another function, or was searched in another space.

        Example
        -------
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> func = workloads.matmul(128, 128, 128)
        >>> plan = fuse_epilogue.plan(func, "trn1")
        >>> plan.problem(func).sizes
        {'m': 128, 'n': 128, 'k': 128}
        """
        return problem_of(self, func)

    def apply(self, func: tirx.PrimFunc | s_tir.Schedule) -> s_tir.Schedule:
        """Return a function scheduled by this plan, as "main".

        The schedule's trace replays on the function, from JSON as well.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc or tvm.s_tir.Schedule
            Not scheduled. Of a schedule, the function that it works on is taken; it stays as it is.

        Returns
        -------
        tvm.s_tir.Schedule
            A new one.

        Raises
        ------
        TypeError
            `func` is something else.
        ValueError
            The plan is for another function, or the schedule works on none.

        Example
        -------
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> func = workloads.matmul(128, 128, 128)
        >>> plan = fuse_epilogue.plan(func, "trn1")
        >>> from fuse_epilogue import neuron
        >>> neuron.emit(plan.apply(func)).parameters
        ('a', 'b', 'bias')
        """
        return self.problem(func).apply(self.point)

    def explain(
        self, func: tirx.PrimFunc | s_tir.Schedule | None = None, *, verbose: bool = False
    ) -> str:
        """Return why this plan was chosen, as text of at most 20 lines.

        Parameters
        ----------
        func : tvm.tirx.PrimFunc or tvm.s_tir.Schedule, optional
            The function that the plan is for. A plan that was read from JSON needs it: without it,
            the binding constraints and the sensitivity to sizes are left out.
        verbose : bool
            Add every term of the costs, all limits, what other sizes would change (each is solved
            again, which takes several times as long as planning), and what the words mean.

        Returns
        -------
        str
            Several lines, the first of which names the function and the machine.

        Raises
        ------
        TypeError
            `func` is neither a PrimFunc nor a Schedule.
        ValueError
            The plan is for another function.

        Example
        -------
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> func = workloads.matmul(128, 128, 128)
        >>> plan = fuse_epilogue.plan(func, "trn1")
        >>> print(plan.explain())
        product of float32, m = 128, n = 128, k = 128, on trn1 (NeuronCore-v2)
        ...
        """
        flag("verbose", verbose)
        problem = self.known if func is None else self.problem(func)
        return reasons.text(self, problem) if verbose else brief.text(self, problem)

    def table(self) -> str:
        """Return the candidates and what each term costs, as a table in Markdown.

        Returns
        -------
        str
            A row for each candidate; costs are in microseconds.

        Example
        -------
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> func = workloads.matmul(128, 128, 128)
        >>> plan = fuse_epilogue.plan(func, "trn1")
        >>> print(plan.table())
        | predicted, us | cost | ...
        """
        return reasons.table(self, self.known)

    def picture(
        self,
        path: str | Path | None = None,
        func: tirx.PrimFunc | s_tir.Schedule | None = None,
        *,
        width: int = 1000,
    ) -> str:
        """Draw the candidates: a roofline, and what each term of their cost is.

        Parameters
        ----------
        path : str or Path, optional
            Path of the SVG to write. If None, it is only returned.
        func : tvm.tirx.PrimFunc or tvm.s_tir.Schedule, optional
            As for :meth:`explain`; without it, there is no roofline.
        width : int
            Pixels; below 760 one part is under the other.

        Returns
        -------
        str
            The SVG.

        Raises
        ------
        TypeError
            `path` is not a path, `width` is not an integer, or `func` is neither a PrimFunc nor a
            Schedule.
        ValueError
            The path does not end in ".svg", the width is below 360, or the plan is for another
            function.
        OSError
            The file cannot be written; what was there stays as it is.

        Example
        -------
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> func = workloads.matmul(128, 128, 128)
        >>> plan = fuse_epilogue.plan(func, "trn1")
        >>> plan.picture("plan.svg") == plan.picture()
        True
        """
        return drawing.draw(self, self.known if func is None else self.problem(func), path, width)

    def to_json(self) -> str:
        """Return the plan as JSON.

        Returns
        -------
        str
            For :meth:`from_json`.

        Raises
        ------
        ValueError
            The plan is for a Trainium machine that is not known by name.

        Example
        -------
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> func = workloads.matmul(128, 128, 128)
        >>> plan = fuse_epilogue.plan(func, "trn1")
        >>> import json
        >>> json.loads(plan.to_json())["machine"]
        'trn1'
        """
        return written(self)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Return the plan that :meth:`to_json` wrote.

        Its costs are taken as they are written: only a search could tell whether they are right.

        Parameters
        ----------
        text : str

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            The text is not valid JSON for a plan, has an unsupported version, contains an invalid
            value, or is inconsistent: see :mod:`.validate_plan`.

        Example
        -------
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> func = workloads.matmul(128, 128, 128)
        >>> plan = fuse_epilogue.plan(func, "trn1")
        >>> fuse_epilogue.planner.Plan.from_json(plan.to_json()) == plan
        True
        """
        return read_plan(Plan, text)
