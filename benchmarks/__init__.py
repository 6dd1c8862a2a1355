"""Speed and memory beside others: ``python -m benchmarks`` prints ratios; ``pytest benchmarks`` measures refcaffe."""
