"""Launch files: a rank map as the texts that start its ranks in exactly that order; pure, one module a launcher."""
