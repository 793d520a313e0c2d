"""The project's own kernels, to exercise the instruments where no upstream source is at hand."""
