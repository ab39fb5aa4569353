"""The pages of the console, by what they are about: each file lists its own as `PAGES`."""
