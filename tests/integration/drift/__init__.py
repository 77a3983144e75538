"""What is changed behind the playbook's back is seen, mended, and then nothing is left to do."""
