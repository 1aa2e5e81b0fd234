"""`covey doctor`: what would go wrong, before a job is started.

facts.py     what a host is like, gathered on it by its agent
cgroups.py   the limits of its control groups
passage.py   connections and large packets from one host to others
visit.py     the conversation with the agents of all hosts
checks.py    the checks by what the hosts have said; those of a single host: host_checks.py
table.py     the checks as lines, and as JSON

Gathering decides nothing, and the checks ask nothing. Internal.
"""
