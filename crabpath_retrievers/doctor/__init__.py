"""What is wrong with a store, each finding with its fix; looking changes nothing."""

from crabpath_retrievers.doctor.examine import examine
from crabpath_retrievers.doctor.finding import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "examine"]
