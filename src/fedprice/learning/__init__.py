"""What is learned, and how clients train: tasks, their training, simulated time."""

from fedprice.learning.clock import Clock
from fedprice.learning.functions import FunctionTask
from fedprice.learning.logistic import LogisticRegression
from fedprice.learning.task import Task, Updates
from fedprice.learning.training import Decay, TheoryRate, Training

__all__ = [
    "Clock",
    "Decay",
    "FunctionTask",
    "LogisticRegression",
    "Task",
    "TheoryRate",
    "Training",
    "Updates",
]
