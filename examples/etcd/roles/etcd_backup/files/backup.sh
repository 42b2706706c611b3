# Saves a snapshot of the first endpoint that answers in $FOLDER, keeps $MAX_BACKUPS, and reports it as JSON. A
# program that fails leaves its error on the standard error, from which Kubernetes takes the message.
set -eu
umask 077

if [ -n "${CLIENT_CRT:-}" ]; then
  printf '%s\n' "$CLIENT_CRT" > /tmp/client.crt
  printf '%s\n' "$CLIENT_KEY" > /tmp/client.key
  printf '%s\n' "$CLIENT_CA_CRT" > /tmp/ca.crt
  export ETCDCTL_CERT=/tmp/client.crt ETCDCTL_KEY=/tmp/client.key ETCDCTL_CACERT=/tmp/ca.crt
fi

status=
for endpoint in $ENDPOINTS; do
  status=$(etcdctl --endpoints="$endpoint" --write-out=json endpoint status) && break
done
[ -n "$status" ]
version=$(printf '%s' "$status" | sed 's/.*"Status":{.*"version":"\([^"]*\)".*/\1/')

mkdir -p "$FOLDER"
file=$FOLDER/$(date -u +%Y%m%d%H%M%S).db
# Written under another name until it is complete.
etcdctl --endpoints="$endpoint" snapshot save "$file" >&2
revision=$(etcdutl --write-out=json snapshot status "$file" | sed 's/.*"revision":\([0-9]*\).*/\1/')

if [ -n "${MAX_BACKUPS:-}" ]; then
  for old in $(ls "$FOLDER" | sort -r | tail -n "+$((MAX_BACKUPS + 1))"); do
    rm -f "$FOLDER/$old"
  done
fi
printf '{"path": "%s", "etcdVersion": "%s", "etcdRevision": %s}' "${file#/backup/}" "$version" "$revision" \
  > /dev/termination-log
