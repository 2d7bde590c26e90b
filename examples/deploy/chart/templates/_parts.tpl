{{- define "crabpath.labels" -}}
app.kubernetes.io/name: crabpath
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "crabpath.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes: [{name: tmp, emptyDir: {}}]
{{- end }}

{{- define "crabpath.container" -}}
image: {{ .Values.image }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts: [{name: tmp, mountPath: /tmp}]
{{- with .Values.envSecret }}
envFrom: [{secretRef: {name: {{ . }}}}]
{{- end }}
{{- end }}

{{- define "crabpath.env" -}}
- {name: CRABPATH_STORE, valueFrom: {secretKeyRef: {name: {{ .Values.secret }}, key: store}}}
{{- with .Values.embeddings }}
- {name: CRABPATH_EMBEDDINGS, value: {{ . | quote }}}
{{- end }}
{{- end }}
