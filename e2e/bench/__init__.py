"""The measures of Muster: `make bench`, or one of them with `python -m e2e.bench NAME`.

gangs      1,000 gangs of 3 on 5,000 nodes: Muster, the stock kube-scheduler, native gangs, side by side
sizes      one big gang, thousands of small jobs, how soon "can't fit" is said, submission to bound
planning   in-process: one cycle, and the pod events a second that one core takes
verbs      the extender's filter and prioritize with all node names, in the server as it is shipped
crowd      long: the first measure again among tens of thousands of waiting pods; the first list of 150,000 pods

Ratios come from runs that alternate on the same machine; absolute numbers depend on it, so each result says
what the machine was and how busy it was before."""
