#include "communicate/hang/heartbeats.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "communicate/hang/processes.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {

/// Equal for processes that reach each other at 127.0.0.1.
[[nodiscard]] std::string this_network() {
  return "net:" + first_line("/proc/sys/kernel/random/boot_id") + ":" + link_of("/proc/self/ns/net");
}

}  // namespace

HeartbeatSocket::HeartbeatSocket(int rank, int size, bool dual) : rank_(rank), ways_(static_cast<std::size_t>(size)) {
  constexpr int kFlags = SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  SocketName name{};
  socklen_t length = sizeof name.v6;
  const int no = 0;
  socket_ = socket(AF_INET6, kFlags, 0);
  name.v6.sin6_family = AF_INET6;
  dual_ = dual && setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) == 0 &&
          bind(socket_, &name.any, length) == 0;
  if (!dual_) {
    close(socket_);  // -1 is none
    socket_ = socket(AF_INET, kFlags, 0);
    name = {};
    name.v4.sin_family = AF_INET;
    require(socket_ != -1 && bind(socket_, &name.any, sizeof name.v4) == 0, ExitCode::communication,
            "the hang watch has no UDP socket: ", std::strerror(errno), "; --comm-timeout 0 does without it");
  }
  length = sizeof name;
  getsockname(socket_, &name.any, &length);
  port_ = ntohs(dual_ ? name.v6.sin6_port : name.v4.sin_port);
}

HeartbeatSocket::~HeartbeatSocket() { close(socket_); }

std::string HeartbeatSocket::introduction() const {
  std::ostringstream text;
  text << port_ << " " << this_network();
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return text.str();
  for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char address[INET6_ADDRSTRLEN] = "";
    if (one->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, address, sizeof address);
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& found = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LINKLOCAL(&found)) inet_ntop(AF_INET6, &found, address, sizeof address);
    }
    if (address[0] != '\0') text << " " << address;
  }
  freeifaddrs(interfaces);
  return text.str();
}

void HeartbeatSocket::introduce(int rank, const std::string& text) {
  static const std::string mine = this_network();
  Way& way = ways_[static_cast<std::size_t>(rank)];
  std::istringstream words(text);
  std::string network;
  int port;
  words >> port >> network;
  if (network == mine) way.addresses.push_back(address_of("127.0.0.1", port));
  for (std::string word; words >> word;)
    if (const Address address = address_of(word, port); address.length > 0) way.addresses.push_back(address);
}

/// Address in the socket's form; of length 0 where the text is none.
HeartbeatSocket::Address HeartbeatSocket::address_of(const std::string& text, int port) const {
  Address result;
  if (dual_) {
    sockaddr_in6& name = result.name.v6;
    name.sin6_family = AF_INET6;
    name.sin6_port = htons(static_cast<std::uint16_t>(port));
    const std::string mapped = text.find(':') == std::string::npos ? "::ffff:" + text : text;
    if (inet_pton(AF_INET6, mapped.c_str(), &name.sin6_addr) == 1) result.length = sizeof name;
  } else {
    sockaddr_in& name = result.name.v4;
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<std::uint16_t>(port));
    if (inet_pton(AF_INET, text.c_str(), &name.sin_addr) == 1) result.length = sizeof name;
  }
  return result;
}

void HeartbeatSocket::send(int rank, Heartbeat& heartbeat) {
  const Way& way = ways_[static_cast<std::size_t>(rank)];
  heartbeat.token = token_;
  heartbeat.sender = rank_;
  heartbeat.receiver = rank;  // hosts may have addresses in common, of bridges of their own
  heartbeat.heard_on = way.heard_on;
  for (int k = 0; k < std::ssize(way.addresses); ++k) {
    if (way.address >= 0 && k != way.address) continue;
    heartbeat.address = k;
    const Address& to = way.addresses[static_cast<std::size_t>(k)];
    (void)!sendto(socket_, &heartbeat, sizeof heartbeat, MSG_NOSIGNAL, &to.name.any, to.length);
  }
}

bool HeartbeatSocket::receive(Heartbeat& heartbeat) {
  for (ssize_t bytes; (bytes = recv(socket_, &heartbeat, sizeof heartbeat, 0)) >= 0 || errno == EINTR;) {
    if (bytes != static_cast<ssize_t>(sizeof heartbeat) || heartbeat.token != token_ || heartbeat.sender < 0 ||
        heartbeat.sender >= std::ssize(ways_) || heartbeat.sender == rank_ || heartbeat.receiver != rank_)
      continue;
    Way& way = ways_[static_cast<std::size_t>(heartbeat.sender)];
    way.heard_on = heartbeat.address;
    if (heartbeat.heard_on >= 0 && heartbeat.heard_on < std::ssize(way.addresses)) way.address = heartbeat.heard_on;
    return true;
  }
  return false;
}

}  // namespace dat
