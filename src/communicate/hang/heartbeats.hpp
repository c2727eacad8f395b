#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "communicate/hang/verdict.hpp"

namespace dat {

/// Message of a rank to every other one: that its process lives, where its main thread is, and, while the run ends,
/// why. Sent as it stands in memory: all ranks run the same build, which they have compared.
struct Heartbeat {
  static constexpr int kMostCulprits = 16;
  std::uint64_t token;  ///< token of the run
  std::int32_t sender, receiver;
  std::int32_t address;   ///< number of the receiver's address to which it goes
  std::int32_t heard_on;  ///< number of the sender's address at which the receiver's have arrived; -1: none has
  RankState::Main main;
  std::uint8_t ending, printed, written;  ///< the run ends; the sender has printed why; its records are in their file
  Verdict::Kind kind;                     ///< valid, with all up to `why`, while the run ends
  std::int32_t culprit_count;
  std::array<std::int32_t, kMostCulprits> culprits;
  std::uint32_t group;
  std::int64_t number;
  double still;
  CallRecord at, reference;
  std::array<char, 200> why;
};

/// Heartbeats between all ranks of a run, by UDP. A rank may have several addresses, of which some may not be reached
/// from everywhere: a heartbeat goes to all of them until one has been heard to arrive.
class HeartbeatSocket {
 public:
  /// dual: false: by IPv4 alone, as where there is no IPv6. Error(communication): no socket.
  HeartbeatSocket(int rank, int size, bool dual = true);
  ~HeartbeatSocket();
  HeartbeatSocket(const HeartbeatSocket&) = delete;
  HeartbeatSocket& operator=(const HeartbeatSocket&) = delete;

  /// Text with which other ranks reach this one: port, network and addresses, with blanks between them.
  [[nodiscard]] std::string introduction() const;
  /// Takes what `rank` has introduced itself with.
  void introduce(int rank, const std::string& text);
  /// The number that heartbeats of this run have, and no others; equal on all ranks.
  void set_token(std::uint64_t token) { token_ = token; }

  /// Sends a heartbeat, whose token, sender, receiver and addresses are filled in here.
  void send(int rank, Heartbeat& heartbeat);
  /// The next heartbeat of another rank of this run that has arrived. False: there is none.
  [[nodiscard]] bool receive(Heartbeat& heartbeat);
  /// All addresses of a rank are to be tried again: perhaps another way to it still goes.
  void try_all(int rank) { ways_[static_cast<std::size_t>(rank)].address = -1; }
  /// Descriptor for poll().
  [[nodiscard]] int descriptor() const { return socket_; }

 private:
  union SocketName {
    sockaddr_in6 v6;
    sockaddr_in v4;
    sockaddr any;
  };
  struct Address {
    SocketName name{};
    socklen_t length = 0;
  };
  struct Way {
    std::vector<Address> addresses;
    int address = -1;   ///< address at which the rank hears this one; -1: not known, so all are tried
    int heard_on = -1;  ///< number of this rank's address that the other one has used last
  };
  [[nodiscard]] Address address_of(const std::string& text, int port) const;

  int rank_, socket_ = -1, port_ = 0;
  bool dual_ = false;  ///< the socket is one of IPv6 that takes IPv4, too
  std::uint64_t token_ = 0;
  std::vector<Way> ways_;  ///< [size]
};

}  // namespace dat
