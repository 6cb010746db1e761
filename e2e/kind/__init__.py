"""kind: Muster as pods of its image, on a kubelet, with a network, Services and DNS.

engine   Docker: the one that is there, or Debian's started by hand
images   the node image where no registry has it, a stand-in for Docker Hub's Python, Muster's image
cluster  the cluster, fake GPU nodes beside its real node, the chart
lab      what scenarios do to processes of a lab, done to containers (KindLab)"""
