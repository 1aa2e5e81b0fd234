"""Covey as a backend of torch.distributed. Internal.

``backend`` makes it known to torch, which ``import covey.torch`` does; ``group``, the process
group, is imported when one is made.
"""
