"""The names of other systems over ours: programs written for another tool layer run after one changed import."""
