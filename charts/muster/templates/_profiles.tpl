{{/* Written by `make docs`: the profiles and plugins that Muster has. A schema can't compare two values. */}}
{{- define "muster.profiles" -}}
afs-l afs-l-packed afs-p afs-p-packed afs-s coach coddl fifo gang gang-pack gavel-fifo gavel-ftf gavel-ftf-packed gavel-ftf-perf gavel-isolation gavel-max-min gavel-max-min-packed gavel-max-min-perf gavel-min-total-duration gavel-min-total-duration-packed gavel-min-total-duration-perf max-min optimus pollux reshape reshape-restart sidecar-default similarity specon specon-default srsf srsf-e srsf-max srtf srtf-e srtf-max termination themis tide tide-packed tiresias-l tiresias-l-max
{{- end -}}
{{- define "muster.plugins" -}}
afs-l afs-p afs-s altruistic coach declared defragment emptiest gang gang-pack gavel-fifo gavel-ftf gavel-isolation gavel-max-min gavel-min-total-duration grow-elsewhere max-min measured network-packing optimus optimus-pollux pack pollux reported reshape resize-cost round-robin sidecar-default similarity specon srsf srtf sweep termination themis tide tiresias-l tiresias-pollux
{{- end -}}
