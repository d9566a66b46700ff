"""One cluster file in the forms of supervisors that people already run."""
