# Copies the configuration of the user, or else the default one. With `watch`, it also has Alertmanager load it again
# when it has changed: the kubelet updates the file some time after its Secret.
copy() {
  from=/etc/alertmanager/default/alertmanager.yaml
  [ ! -e /etc/alertmanager/config/alertmanager.yaml ] || from=/etc/alertmanager/config/alertmanager.yaml
  cp "$from" /etc/alertmanager/config_out/next &&
    mv /etc/alertmanager/config_out/next /etc/alertmanager/config_out/alertmanager.env.yaml
}

checksum() {
  cat /etc/alertmanager/config/* 2> /dev/null | md5sum
}

if [ "$1" != watch ]; then
  copy
  exit
fi

trap exit TERM
loaded=
while sleep 2 & wait $!; do
  current=$(checksum)
  if [ "$current" != "$loaded" ] && copy && wget -q -O /dev/null --post-data= "$RELOAD_URL"; then
    loaded=$current
    echo "Loaded $current"
  fi
done
