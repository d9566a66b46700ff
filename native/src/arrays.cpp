#include "arrays.h"

#include <algorithm>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

// NumPy is loaded with the first array: a process that ends at once is not to wait for it.
static bool have_numpy() {
    static bool loaded = false;
    return loaded || (loaded = _import_array() >= 0);
}

bool FoundArray::find(nb::handle object, char kind, size_t item, int n, bool writable) noexcept {
    if (!have_numpy()) PyErr_Clear();
    if (!PyArray_API || !PyArray_Check(object.ptr())) return false;
    PyArrayObject *found = (PyArrayObject *)object.ptr();
    const PyArray_Descr *type = PyArray_DESCR(found);
    const int flags = PyArray_FLAGS(found), needed = NPY_ARRAY_C_CONTIGUOUS | (writable ? NPY_ARRAY_WRITEABLE : 0);
    const int most = n == ANY_DIMENSIONS ? MOST_DIMENSIONS : n, least = n == ANY_DIMENSIONS ? 0 : n;
    dimensions = PyArray_NDIM(found);
    if (type->kind != kind || (size_t)PyDataType_ELSIZE(type) != item || !PyArray_ISNBO(type->byteorder) ||
        (flags & needed) != needed || dimensions < least || dimensions > most)
        return false;
    data = PyArray_DATA(found);
    array = object;
    std::copy_n(PyArray_DIMS(found), dimensions, shape);
    return true;
}

nb::object array_at(nb::handle owner, const void *data, DType dtype, std::initializer_list<size_t> shape) {
    constexpr int types[] = {NPY_INT8, NPY_UINT8, NPY_INT32, NPY_INT64, NPY_FLOAT32};
    if (!have_numpy()) throw nb::python_error();
    npy_intp extents[MOST_DIMENSIONS];
    std::copy(shape.begin(), shape.end(), extents);
    PyObject *array =
        PyArray_NewFromDescr(&PyArray_Type, PyArray_DescrFromType(types[(int)dtype]), (int)shape.size(), extents,
                             nullptr, const_cast<void *>(data), NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED, nullptr);
    if (!array) throw nb::python_error();
    nb::object made = nb::steal(array);
    if (PyArray_SetBaseObject((PyArrayObject *)array, owner.inc_ref().ptr())) throw nb::python_error();
    return made;
}
