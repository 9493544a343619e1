"""The cuts of this project, one file each; importing the package imports none."""
