"""Reports that people share: charts, and HTML pages that need nothing but a browser."""
