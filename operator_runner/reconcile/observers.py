"""The features of a watch, as observers: only those that it uses."""

from __future__ import annotations

from datetime import timedelta

from operator_runner.core.model import Watch
from operator_runner.core.settings import AnsibleSettings
from operator_runner.reconcile.dependencies import Dependencies
from operator_runner.reconcile.drift import DriftObserver
from operator_runner.reconcile.expression_conditions import ExpressionObserver
from operator_runner.reconcile.idempotence import IdempotenceObserver
from operator_runner.reconcile.kstatus_conditions import KstatusObserver
from operator_runner.reconcile.observer import Observer
from operator_runner.reconcile.other_writers import OtherWritersObserver
from operator_runner.reconcile.play import RecordObserver, TaskObserver
from operator_runner.reconcile.pruning import PruneObserver
from operator_runner.reconcile.report import Reporter
from operator_runner.reconcile.requests import RequestObserver, SuspensionObserver
from operator_runner.reconcile.reserved_fields import DroppedFieldsObserver
from operator_runner.reconcile.schedule import ScheduleObserver


def observers_of(
    watch: Watch,
    dependencies: Dependencies,
    reporter: Reporter,
    ansible: AnsibleSettings,
    period: timedelta | None,
) -> list[Observer]:
    """Return the observers of a watch, in the order in which each moment calls them.

    `period` is the time between two runs of a resource, None for none.
    """
    schedule = None if watch.schedule is None else ScheduleObserver(watch, dependencies)
    is_due = (lambda _: False) if schedule is None else schedule.is_due
    observers: list[Observer | None] = [
        SuspensionObserver(reporter),
        DriftObserver(watch, dependencies, reporter.status, is_due, period),
        DroppedFieldsObserver(dependencies.variable_names, dependencies.cluster),
        schedule,
        IdempotenceObserver(dependencies),
        OtherWritersObserver(dependencies.other_writers, dependencies.cluster),
        RecordObserver(dependencies),
        TaskObserver(dependencies, ansible),
        None if watch.prune is None else PruneObserver(watch, dependencies),
        ExpressionObserver(watch, dependencies.expressions),
        KstatusObserver(watch, dependencies.dependents) if watch.kstatus else None,
        RequestObserver(dependencies.cluster),
    ]
    return [each for each in observers if each is not None]
