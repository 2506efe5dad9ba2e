"""What stays on while the job runs: patches of torch and the counters behind them."""
