"""Tables, plots and reports of a run."""
