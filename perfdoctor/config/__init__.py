"""perfdoctor.toml and [tool.perfdoctor]: what a project says about its checks, its gate and its budgets."""
