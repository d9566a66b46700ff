"""A model's files over the wire: given in pieces by one process, fetched by workers that have none."""
