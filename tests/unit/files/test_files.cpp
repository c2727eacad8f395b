// Files, and the texts in them: what is written at once, numbers, JSON of strangers, Protocol Buffers.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catch.hpp"
#include "dat/file.hpp"
#include "dat/number.hpp"
#include "files/outside_json.hpp"
#include "files/protobuf.hpp"
#include "files/whole_number.hpp"

using namespace dat;
namespace fs = std::filesystem;
using std::string_literals::operator""s;

TEST_CASE("A number is all of a text, a fraction is finite, and blanks go from both ends", "[files]") {
  const auto fraction = [](const std::string& text) {
    double value = 0;
    return read_fraction(text, value) ? std::optional(value) : std::nullopt;
  };
  CHECK((fraction("8/255") == 8.0 / 255 && fraction("-0.5") == -0.5));
  for (const char* none : {"", "/", "1/", "/2", "1/0", "1 ", "1/2 ", "0x1", "nan", "inf", "1e999", "3/2/1"})
    CHECK(!fraction(none));
  CHECK((trimmed(" \t a b\t ") == "a b" && trimmed("ab") == "ab" && trimmed(" \t").empty()));
}

TEST_CASE("JSON of strangers is nested 64 deep at most, and its counts are those that fit", "[files]") {
  using Json = nlohmann::json;
  const auto many = [](std::string text, int times) {
    for (const std::string one = text; --times > 0;) text += one;
    return text;
  };
  for (const std::string& flat :
       {many("[", 64), many("{\"a\":", 64), many("[]", 100), many("{}", 100), "\"" + many("[", 100),
        "\"\\\"" + many("[", 100)})  // a text that the quote in it does not end
    CHECK(!nested_too_deeply(flat));
  for (const std::string& deep : {many("[", 65), many("{\"a\":", 65), "\"a\"" + many("[", 65)})
    CHECK(nested_too_deeply(deep));
  const std::string deep = many("[", 65) + many("]", 65);
  CHECK((json_or_discarded(deep).is_discarded() && json_or_discarded("{").is_discarded()));
  CHECK((json_or_discarded("[1]") == Json{1} && parsed_json("[1]") == Json{1}));
  CHECK(error_of([&] { static_cast<void>(parsed_json(deep)); }) == "3: its JSON is nested too deeply");
  const TemporaryFolder folder;
  write_bytes(folder / "list", "[1]");
  CHECK(json_text_in(folder / "list", "list") == "[1]");
  const std::string grows = "/proc/self/status";  // a file of no bytes, in which there are some
  CHECK(error_of([&] { static_cast<void>(json_text_in(grows, "list")); }) == "3: cannot read the list " + grows);
  fs::resize_file(folder / "list", (std::uintmax_t{1} << 30) + 1);
  CHECK(contains(error_of([&] { static_cast<void>(json_text_in(folder / "list", "list")); }), "more than 1 GiB"));

  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(), kExact = std::int64_t{1} << 53;
  CHECK((whole_number(Json(5), 5, 5) == 5 && whole_number(Json(-1), -1) == -1));
  CHECK(whole_number(Json(static_cast<std::uint64_t>(kMost)), 0) == kMost);
  CHECK(!whole_number(Json(~std::uint64_t{0}), -1));  // in 64 bits, -1
  for (const Json& none : {Json(4), Json(6), Json(5.0), Json("5"), Json(true), Json()})
    CHECK(!whole_number(none, 5, 5));
  CHECK((count_in<int>(Json(2147483647)) == 2147483647 && count_in<std::int64_t>(Json(kExact)) == kExact));
  CHECK_THROWS_AS(count_in<std::int64_t>(Json(kExact + 1)), Error);
  CHECK(error_of([] { static_cast<void>(count_in<int>(Json(2147483648))); }) ==
        "3: 2147483648 is no whole number from 0 to 2147483647");
  CHECK(error_of([] { static_cast<void>(count_in<int>(Json(std::string(50, 'a')), 1)); }) ==
        "3: \"" + std::string(39, 'a') + " is no whole number from 1 to 2147483647");
  CHECK(counts_in<int>(Json{1, 2, 0}) == std::vector<int>{1, 2, 0});
}

TEST_CASE("A field of a message is found after those of every kind, and none where the message is cut off", "[files]") {
  ProtobufMessage message, inner;
  inner.integer(1, 5);
  message.real64(1, 0.5);
  message.real(2, 0.5F);
  message.reals(3, std::vector{1.0, 2.0});
  message.text(4, "first");
  message.bytes(4, "second");
  message.copy(5, inner);
  message.integer(300, -2);
  const std::string bytes = message.pieces().front();
  CHECK(message.size() == std::ssize(bytes));
  CHECK(bytes == "\x09\0\0\0\0\0\0\xe0\x3f"s + "\x15\0\0\0\x3f"s + "\x1a\x10\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\x40"s +
                     "\x22\5first\x22\6second\x2a\2\x08\5\xe0\x12\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1");
  CHECK((bytes_in(bytes, 4) == "first" && integer_in(bytes, 300) == -2));
  CHECK(integer_in(bytes_in(bytes, 5).value_or(""), 1) == 5);
  CHECK((!bytes_in(bytes, 2) && !bytes_in(bytes, 6) && !integer_in(bytes, 4)));
  const auto first = [&](std::size_t without) { return std::string_view(bytes).substr(0, bytes.size() - without); };
  CHECK((bytes_in(first(12), 5) && !bytes_in(first(13), 5) && !integer_in(first(1), 300)));
  CHECK(integer_in("\x08\x80\x01", 1) == 128);
  CHECK(!integer_in("\x0b" + bytes, 300));                           // a group
  CHECK(!integer_in("\x08" + std::string(10, '\xff') + "\x01", 1));  // more than 64 bits
  message.bytes(6, std::string(1 << 16, 'x'));                       // a piece of its own, to which nothing is added
  message.integer(7, 1);
  CHECK(message.pieces().size() == 3);
  message.clear();
  message.integer(1, 150);
  CHECK((message.size() == 3 && message.pieces().front() == "\x08\x96\x01"));
}

TEST_CASE("A file is written at once or not at all, and a writer that gives up keeps no space", "[files]") {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  int held = -1;
  CHECK(error_of([&] {
          write_atomically(path, [&](const std::string& temporary) {
            write_bytes(temporary, "half");
            held = ::open(temporary.c_str(), O_RDONLY | O_CLOEXEC);
            fail(ExitCode::device, temporary, " is odd");
          });
        }) == "5: " + path + " is odd");
  struct stat status {};
  CHECK((::fstat(held, &status) == 0 && status.st_size == 0 && folder.names().empty()));
  ::close(held);
  const auto sealed = [&](const std::string& bytes) {
    return error_of([&] { write_sealed(path, [&](const std::string& one) { write_bytes(one, bytes); }); });
  };
  CHECK(sealed(std::string(kSealBytes, 'x')) == "9: " + path + ": has no room for a seal");
  CHECK(sealed(std::string(kSealBytes + 1, 'x')) == "none");
  std::vector<SealGap> gaps(1);
  CHECK((has_seal(path) && check_seal(path, &gaps).empty() && gaps.empty()));
  const std::vector<SealGap> all = {{kSealBytes, 1}};
  write_sealed(path, [&](const std::string& one) {
    write_bytes(one, std::string(kSealBytes + 1, 'x'));
    leave_out(one, all);
  });
  CHECK((check_seal(path, &gaps).empty() && gaps == all));
  CHECK(error_of([&] { write_sealed(path, [](const std::string&) {}); }) ==
        "9: " + path + ": cannot seal it: No such file or directory");
  write_bytes(path, "text");
  CHECK((!has_seal(path) && !has_seal(folder / "none")));
  CHECK(check_seal(path) == "is cut off within the first 512 bytes");
  const std::string none = folder / "none", why = "No such file or directory";
  CHECK(check_seal(none) == "cannot be read: " + why);
  CHECK(error_of([&] { leave_out(none, {}); }) == "9: " + none + ": cannot seal it: " + why);
  CHECK(error_of([&] { write_atomically(none, [](const std::string&) {}); }) ==
        "9: " + none + ": cannot bring it to disk: " + why);

  CHECK((small_file(path) == "text" && !small_file(folder.path()) && !small_file(folder / "none")));
  fs::resize_file(path, 16 << 20);
  CHECK(small_file(path).value_or("").size() == 16 << 20);
  fs::resize_file(path, (16 << 20) + 1);
  CHECK(!small_file(path));
}

TEST_CASE("What killed writers left goes: of one file, with folders, or of all, without", "[files]") {
  const TemporaryFolder folder;
  for (const char* name : {".a.tmp-1", ".a.tmp-2/x", ".ab.tmp-1", ".b.tmp-3/x", ".c", "a.tmp-1"})
    write_bytes(folder / name, "");
  const auto left_after = [&](const std::string& of) {
    remove_temporaries(folder.path(), of);
    return folder.names();
  };
  CHECK(left_after("a") == std::vector<std::string>{".ab.tmp-1", ".b.tmp-3", ".c", "a.tmp-1"});
  CHECK(left_after("") == std::vector<std::string>{".b.tmp-3", ".c", "a.tmp-1"});
  CHECK(error_of([&] { remove_temporaries(folder / "none"); }).starts_with("9: " + (folder / "none")));
  CHECK(error_of([] { make_folder(""); }) == "none");
}

TEST_CASE("A word of a command is quoted where a shell would take it for more", "[files]") {
  CHECK(quoted_word("AZaz09+,-./:=@_") == "AZaz09+,-./:=@_");
  for (const char c : "[{;~^*!#%&'()|<>? "s) CHECK(quoted_word({c}) == "\""s + c + "\"");
  CHECK((quoted_word("") == "\"\"" && quoted_word("a\"b\\c$d`e") == R"("a\"b\\c\$d\`e")"));
  CHECK(quoted_word("a\n\0\x1f\xc3\xa9"s) == "\"a???\xc3\xa9\"");
}
