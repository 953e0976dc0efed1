"""A small PyTorch model whose clients are paid."""
