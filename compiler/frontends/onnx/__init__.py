"""ONNX in and out: models are imported, split between machine and host, lowered to the IR, and written again."""
