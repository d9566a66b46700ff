"""What every process that holds experts does: join a mesh, stay, make ready what it is assigned, answer."""
