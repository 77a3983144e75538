"""The fault matrix: what goes wrong between a GPU and its Node's status, each case by its name.

Every case ends converged, or in a typed error with the remedy. Real SSM documents on the lab's
nodes and a real API server. The cluster has no agent, so that only the code under test writes.
"""
