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
