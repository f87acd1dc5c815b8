#!/bin/bash
# PID 1 of new namespaces: makes a machine of this machine's files, and becomes its systemd. What the machine writes is
# in memory, and goes with it.
#
#   boot.sh FOLDER ENVIRONMENT TREE    # an empty folder, the Python environment with Cotenant, the checkout
set -euo pipefail
folder=$1 environment=$2 tree=$3
interpreter=$(readlink -f "$environment/bin/python")

mount --make-rprivate /
mount -t tmpfs tmpfs "$folder"
mkdir "$folder"/{root,upper,work,environment,environment-work}
root=$folder/root
mount -t overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" overlay "$root"

mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root"/dev/{pts,shm}
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    IFS=: read -r name major minor <<<"$device"
    mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done
# Nothing that this machine has enabled, keeps or runs.
for empty in run tmp home etc/systemd/system etc/systemd/user var/lib/systemd var/tmp var/log var/cache; do
    mkdir -p "$root/$empty"
    mount -t tmpfs -o mode=755 tmpfs "$root/$empty"
done
chmod 1777 "$root"/{tmp,var/tmp}
for service in systemd-networkd systemd-resolved systemd-timesyncd systemd-udevd systemd-sysctl; do
    ln -s /dev/null "$root/etc/systemd/system/$service.service"
done

# An installation of an administrator's: all users may read it, and the unit's private /tmp does not hide it.
mkdir -p "$root/opt/cotenant"
mount -t overlay -o "lowerdir=$environment,upperdir=$folder/environment,workdir=$folder/environment-work" \
    overlay "$root/opt/cotenant"
sed -i '1s|.*|#!/opt/cotenant/bin/python|' "$root/opt/cotenant/bin/cotenant"
cp -r "$tree/tests/interposer/programs" "$root/opt/programs"
chmod -R a+rX "$root/opt/programs"
chmod a+rx "$root/opt" "$root/opt/cotenant"
above=$interpreter
while [ "$above" != / ]; do
    above=$(dirname "$above")
    chmod o+rx "$root$above"
done

chroot "$root" groupadd gpu-admins
for user in alice bob; do chroot "$root" useradd --create-home "$user"; done
chroot "$root" useradd --create-home --groups gpu-admins carol

cd "$root"
pivot_root . mnt
umount -l /mnt
exec env -i container=cotenant-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=multi-user.target </dev/null
