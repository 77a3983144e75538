"""What the integration tests share: running playbooks, counting processes, reading AWS itself."""
