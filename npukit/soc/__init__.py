"""The accelerator as a package for other people's systems."""
