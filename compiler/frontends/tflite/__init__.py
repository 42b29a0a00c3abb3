"""TFLite models in: files, their operators, and the graph that the other passes take."""
