"""What no paper owns: the ledger's marker, kernels, quadrature, factorisations and their errors."""
