"""PyTorch in: graphs of ATen operators, simplified, and as the ONNX graphs that the other passes take. Needs torch."""
