#include <algorithm>
#include <vector>

#include "calls.h"

using namespace framing;

namespace {

constexpr size_t SIZES[] = {1, 1, 4, 8, 4};

template <class T> void put(std::vector<uint8_t> &to, T value) {
    const uint8_t *bytes = (const uint8_t *)&value; // little-endian machines only, as all of native
    to.insert(to.end(), bytes, bytes + sizeof value);
}

} // namespace

NewBytes::NewBytes(size_t size) : object(nb::steal(PyBytes_FromStringAndSize(nullptr, (Py_ssize_t)size))) {
    if (!object.is_valid()) throw nb::python_error();
    data = PyBytes_AS_STRING(object.ptr());
}

nb::object array_of(const std::vector<int32_t> &values) {
    NewBytes bytes(4 * values.size());
    std::copy(values.begin(), values.end(), (int32_t *)bytes.data);
    return array_at(bytes.object, bytes.data, DType::i4, {values.size()});
}

Writer::Writer(uint8_t kind, std::initializer_list<int64_t> numbers, std::initializer_list<size_t> extents,
               nb::str text) {
    Py_ssize_t bytes;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &bytes);
    if (!utf8) throw nb::python_error();
    expect((size_t)bytes <= LARGEST_TEXT, "a text is too long");
    head_.reserve(256);
    put(head_, MAGIC);
    put(head_, kind);
    put(head_, (uint16_t)0);
    put(head_, (uint32_t)bytes);
    for (int64_t number : numbers) put(head_, number);
    for (size_t extent : extents) {
        expect(extent <= LARGEST_FRAME, "an array is too long");
        put(head_, (uint32_t)extent);
    }
    head_.insert(head_.end(), utf8, utf8 + bytes);
}

nb::tuple Writer::frame(std::initializer_list<Span> arrays) const {
    size_t end = head_.size();
    int large = 0;
    for (const Span &array : arrays) {
        expect(array.bytes <= LARGEST_FRAME, "an array is too large");
        if (array.bytes >= LARGE)
            large++;
        else if (array.bytes)
            end = aligned(end) + array.bytes;
    }
    NewBytes frame(end);
    char *to = frame.data;
    memcpy(to, head_.data(), head_.size());
    size_t at = head_.size();
    for (const Span &array : arrays) {
        if (array.bytes == 0 || array.bytes >= LARGE) continue;
        size_t start = aligned(at);
        memset(to + at, 0, start - at);
        memcpy(to + start, array.data, array.bytes);
        at = start + array.bytes;
    }
    return nb::make_tuple(frame.object, large);
}

Reader::Reader(nb::list frames, uint8_t kind, size_t number_count, size_t extent_count) {
    buffers_.reserve(frames.size());
    frames_.reserve(frames.size());
    try {
        for (nb::handle frame : frames) open(frame);
        const size_t fixed = 8 + 8 * number_count + 4 * extent_count;
        const uint8_t *head = (const uint8_t *)buffers_.at(0).buf;
        const size_t size = (size_t)buffers_[0].len;
        expect(size >= fixed && head[0] == MAGIC && head[1] == kind && !head[2] && !head[3], "no header of this kind");
        uint32_t bytes;
        memcpy(&bytes, head + 4, 4);
        expect(bytes <= LARGEST_TEXT && bytes <= size - fixed, "a text is longer than its frame");
        numbers.resize(number_count);
        memcpy(numbers.data(), head + 8, 8 * number_count);
        for (size_t i = 0; i < extent_count; i++) {
            uint32_t extent;
            memcpy(&extent, head + 8 + 8 * number_count + 4 * i, 4);
            expect(extent <= LARGEST_FRAME, "an array is too long");
            extents.push_back(extent);
        }
        text_ = (const char *)head + fixed;
        text_bytes_ = bytes;
        at_ = fixed + bytes;
    } catch (...) {
        for (Py_buffer &buffer : buffers_) PyBuffer_Release(&buffer);
        throw;
    }
}

Reader::~Reader() {
    for (Py_buffer &buffer : buffers_) PyBuffer_Release(&buffer);
}

// Aligned and read-only: as it is if those are bytes, which always are.
void Reader::open(nb::handle frame) {
    nb::object held = nb::borrow(frame);
    Py_buffer buffer;
    if (PyObject_GetBuffer(held.ptr(), &buffer, PyBUF_SIMPLE)) throw nb::python_error();
    if (!PyBytes_CheckExact(held.ptr())) {
        bool moves = (uintptr_t)buffer.buf % ALIGNMENT != 0;
        held = moves ? nb::steal(PyBytes_FromStringAndSize((const char *)buffer.buf, buffer.len))
                     : nb::steal(PyMemoryView_FromObject(held.ptr())).attr("toreadonly")();
        PyBuffer_Release(&buffer);
        if (PyObject_GetBuffer(held.ptr(), &buffer, PyBUF_SIMPLE)) throw nb::python_error();
    }
    buffers_.push_back(buffer);
    frames_.push_back(std::move(held));
}

Array Reader::find(DType dtype, int dimensions, size_t rows, size_t columns, size_t depth) {
    Array array{dtype, 0, 0, nullptr, dimensions, {rows, columns, depth}};
    // Extents are below 2^27 and rows below 2^14: no product overflows.
    const size_t bytes = rows * columns * depth * SIZES[(int)dtype];
    expect(bytes <= LARGEST_FRAME, "an array is too large");
    if (bytes >= LARGE) {
        expect(next_ < buffers_.size() && (size_t)buffers_[next_].len == bytes, "a frame is not exactly its array");
        array.frame = next_++;
    } else if (bytes) {
        array.offset = aligned(at_);
        at_ = array.offset + bytes;
        expect(at_ <= (size_t)buffers_[0].len, "a frame ends before its arrays");
    }
    array.data = (const char *)buffers_[array.frame].buf + array.offset;
    return array;
}

void Reader::end() const {
    expect(next_ == buffers_.size() && at_ == (size_t)buffers_[0].len, "frames are not exactly the arrays");
}

nb::object Reader::text() const {
    PyObject *text = PyUnicode_DecodeUTF8(text_, (Py_ssize_t)text_bytes_, nullptr);
    if (!text) throw nb::python_error(); // UnicodeDecodeError, a ValueError
    return nb::steal(text);
}

nb::object Reader::view(const Array &array) const {
    const size_t *n = array.shape;
    nb::handle frame = frames_[array.frame];
    if (array.dimensions == 1) return array_at(frame, array.data, array.dtype, {n[0]});
    if (array.dimensions == 2) return array_at(frame, array.data, array.dtype, {n[0], n[1]});
    return array_at(frame, array.data, array.dtype, {n[0], n[1], n[2]});
}

nb::object Reader::message(nb::handle cls, const std::vector<nb::object> &names,
                           std::initializer_list<nb::object> values) {
    PyTypeObject *type = (PyTypeObject *)cls.ptr();
    nb::object made = nb::steal(type->tp_alloc(type, 0));
    if (!made.is_valid()) throw nb::python_error();
    auto name = names.begin();
    for (const nb::object &value : values)
        if (PyObject_GenericSetAttr(made.ptr(), (name++)->ptr(), value.ptr())) throw nb::python_error();
    return made;
}

std::vector<nb::object> interned(std::initializer_list<const char *> names) {
    std::vector<nb::object> all;
    for (const char *name : names) all.push_back(nb::steal(PyUnicode_InternFromString(name)));
    return all;
}
