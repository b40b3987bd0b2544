# The static program for operators, with units, configuration, man pages and completions, out of the Debian package that `dist/package deb
# [--target TRIPLE]` of Holdover's sources makes. Releases of OpenEmbedded have no Rust toolchain that is new enough to compile it. In local.conf:
#
#   HOLDOVER_PACKAGE = "/path/to/holdover_0.1.0_arm64.deb"
#
# The agent starts at boot; `systemctl enable holdover-gateway` (which needs an interface in /etc/holdover/gateway.toml) and holdover-hip are the
# image's decision. Rules for user timeouts need a kernel with CONFIG_DEBUG_INFO_BTF and CONFIG_CGROUP_BPF; `holdover doctor` lists what is missing.

SUMMARY = "Keeps TCP fast over links that come and go"
DESCRIPTION = "The agent wakes connections when a link is back; the gateway keeps packets for mobile hosts while they are away; \
host identities keep connections when an address changes."
SECTION = "net"
LICENSE = "MIT | Apache-2.0"
LIC_FILES_CHKSUM = "file://${COMMON_LICENSE_DIR}/MIT;md5=0835ade698e0bcf8506ecda2f7b4f302 \
                    file://${COMMON_LICENSE_DIR}/Apache-2.0;md5=89aea4e17d99a7cacdbeed46a0096b10"

HOLDOVER_PACKAGE ??= ""
SRC_URI = "file://${HOLDOVER_PACKAGE};subdir=${BP}"

python () {
    package = d.getVar("HOLDOVER_PACKAGE")
    if not package:
        raise bb.parse.SkipRecipe("HOLDOVER_PACKAGE names no package: `dist/package deb` of Holdover's sources makes one")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(d.getVar("TARGET_ARCH"))
    if not machine or not package.endswith("_%s.deb" % machine):
        raise bb.parse.SkipRecipe("HOLDOVER_PACKAGE is not for %s: %s" % (d.getVar("TARGET_ARCH"), package))
}

inherit bin_package features_check systemd

REQUIRED_DISTRO_FEATURES = "systemd"
S = "${@d.getVar('UNPACKDIR') or d.getVar('WORKDIR')}/${BP}"
# A Debian package contains an archive that xz unpacks, which no release knows by the name.
do_unpack[depends] += "xz-native:do_populate_sysroot"
# Nothing is compiled, and nothing linked dynamically.
INHIBIT_DEFAULT_DEPS = "1"
INHIBIT_PACKAGE_STRIP = "1"
INHIBIT_PACKAGE_DEBUG_SPLIT = "1"
INSANE_SKIP:${PN} += "already-stripped"

do_install:append() {
    rm -r ${D}${datadir}/doc
    mv ${D}${datadir}/zsh/vendor-completions ${D}${datadir}/zsh/site-functions
    # Without merged /usr units are in /lib.
    if [ "${systemd_system_unitdir}" != "/usr/lib/systemd/system" ]; then
        install -d ${D}${systemd_system_unitdir}
        mv ${D}/usr/lib/systemd/system/holdover-*.service ${D}${systemd_system_unitdir}/
        rmdir -p --ignore-fail-on-non-empty ${D}/usr/lib/systemd/system
    fi
}

SYSTEMD_SERVICE:${PN} = "holdover-agent.service"
CONFFILES:${PN} = "${sysconfdir}/holdover/agent.toml ${sysconfdir}/holdover/gateway.toml"
