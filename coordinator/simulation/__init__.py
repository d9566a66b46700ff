"""A cluster of any size in simulated time: the coordinator's own code, with workers, network and processors made up.

Members, placement, plan, dispatch and deadlines are the real ones; what takes time is a figure of the scenario.
"""
