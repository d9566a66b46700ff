"""Where experts' bytes come from when they are computed: the file, or a copy nearer to the kernels (docs/tiers.md)."""
