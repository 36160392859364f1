"""Running the contract suites: pytest plugin, conformance engine, machines and worlds that are wrong on purpose."""
