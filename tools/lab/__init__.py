"""The code of tools/cluster: hosts made of namespaces, and the network between them."""
