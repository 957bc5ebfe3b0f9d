{{- define "frazil.name" -}}
{{- printf "%s" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "frazil.selector" -}}
app.kubernetes.io/name: frazil
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "frazil.labels" -}}
{{ include "frazil.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The exporter's pods are no agents: clients must not be sent to them. */}}
{{- define "frazil.exporterSelector" -}}
app.kubernetes.io/name: frazil-exporter
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "frazil.exporterLabels" -}}
{{ include "frazil.exporterSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The ports at which each of several workers is reached alone, besides service.port; named w1, w2, … */}}
{{- define "frazil.workerPorts" -}}
{{- $workers := int .Values.workers -}}
{{- if gt $workers 1 -}}
{{- $step := index .Values.settings "workers.port.step" | default 100 | int -}}
{{- range $number := untilStep 1 (int (add $workers 1)) 1 }}
- {name: kafka-w{{ $number }}, port: {{ add $.Values.service.port (mul $number $step) }}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A setting's value as text: Helm reads numbers as floats, and would write 100 MiB as 1.048576e+08. */}}
{{- define "frazil.value" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . | toString | quote -}}
{{- else -}}
{{- toString . | quote -}}
{{- end -}}
{{- end -}}

{{/* Where the token of the agents' admin listener is, under the key "token". */}}
{{- define "frazil.tokenSecret" -}}
{{- .Values.admin.tokenSecret | default (printf "%s-admin" (include "frazil.name" .)) -}}
{{- end -}}

{{/* What is spoken on the http port, for URLs; Kubernetes wants it in capitals. */}}
{{- define "frazil.httpScheme" -}}
{{- if .Values.admin.tls }}https{{ else }}http{{ end -}}
{{- end -}}
